"""Classifiers of images: data, augmentation, model, training loop."""
