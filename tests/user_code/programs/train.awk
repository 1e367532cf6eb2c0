# Prints its progress only: the numbers are read from the output by patterns.
BEGIN {
    loss = 1
    for (epoch = 1; epoch <= 4; epoch++) {
        loss *= 1 - rate
        printf "epoch %d\n", epoch
        printf "loss=%.6f\n", loss
    }
}
