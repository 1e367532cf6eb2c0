"""Every private part of another package that `trainables` uses or replaces.

The versions that have these parts are bounded in `pyproject.toml`. `tests/test_upstream.py` checks
each part on the installed classes, and that no other is used. It passes with Ray 2.60.0, torch
2.13.0 and 2.14.1, transformers 5.23.0 and Optuna 5.0.0; a nightly job installs the newest that are
allowed.
"""

PRIVATE: dict[str, str] = {
    # training/communication/exchange.py asks how long a rank waited for gradients.
    "torch.nn.parallel:DistributedDataParallel._get_ddp_logging_data": "(self)",
    "torch.nn.parallel:DistributedDataParallel._set_ddp_runtime_logging_sample_rate": (
        "(self, sample_rate)"
    ),
    # launch/lanes/trainer.py and launch/ray_train_loops/run.py leave two of Ray Train's
    # default callbacks out. The former runs the controller in the driver.
    "ray.train.v2.api.data_parallel_trainer:DataParallelTrainer._initialize_and_run_controller": (
        "(self, **controller_init_kwargs)"
    ),
    "ray.train.v2._internal.callbacks:DatasetsCallback": "attribute",
    "ray.train.v2._internal.callbacks.placement_group_callback:PlacementGroupCleanerCallback": (
        "attribute"
    ),
    "ray.train.v2._internal.execution.controller.controller:TrainController.run": "(self)",
    "ray.train.v2._internal.execution.controller.controller:TrainController.get_result": "(self)",
    "ray.train.v2._internal.execution.controller.controller:TrainController.worker_group_cls": (
        "attribute"
    ),
    # launch/lanes/trainer.py replaces the scaling policy, which starts an actor for autoscalers.
    "ray.train.v2._internal.execution.scaling_policy:FixedScalingPolicy": "(scaling_config)",
    "ray.train.v2._internal.execution.scaling_policy:FixedScalingPolicy.after_controller_start": (
        "(self, train_run_context)"
    ),
    "ray.train.v2._internal.execution.scaling_policy"
    ":FixedScalingPolicy._maybe_send_resource_request": "(self)",
    # launch/process_group.py chooses the network interfaces before the process group starts.
    "ray.train.torch.config:_TorchBackend.on_start": "(self, worker_group, backend_config)",
    # launch/lanes/trainer.py keeps workers that cannot be reached for a moment.
    "ray.train.v2._internal.execution.worker_group.worker_group"
    ":WorkerGroup._poll_workers_and_collect_errors": "(self, timeout)",
    # It lets workers take processes that wait, which have no runtime environment.
    "ray.train.v2._internal.execution.worker_group.worker_group"
    ":WorkerGroup._get_worker_runtime_env": "(custom_runtime_env)",
    "ray.train.v2._internal.execution.worker_group.poll:WorkerStatus": (
        "(running, error=None, training_report=None, return_value=None, preemption_info=None)"
    ),
    # launch/lanes/trainer.py starts no such actor, and has none to end.
    "ray.train.v2._internal.execution.worker_group.worker_group:SynchronizationActor": "attribute",
    "ray.train.v2._internal.execution.worker_group.state:_shutdown_sync_actor": "(sync_actor)",
    # launch/node_notices.py reads which machines are taken away, and passes on a cloud's notice.
    "ray._private.state:state": "attribute",
    "ray._private.state:GlobalState.get_draining_nodes": "(self)",
    # launch/errors.py tells a rank that died from ranks that noticed it.
    "ray.train.v2._internal.exceptions:WorkerHealthCheckFailedError.health_check_failure": (
        "attribute"
    ),
    # parallel/ asks models for their blocks. It clears what torch remembers of a trial's process
    # groups.
    "transformers:PreTrainedModel._no_split_modules": "attribute",
    "torch.distributed.tensor.debug:_clear_sharding_prop_cache": "()",
    # parallel/meter.py lets tensors of several ranks call operations on their parts.
    # parallel/fake_rank.py replaces what reads numbers from fake tensors.
    "torch.distributed.pipelining._utils:InferenceMode": "attribute",
    "torch.distributed.pipelining.schedules:_PipelineSchedule": (
        "(n_microbatches, loss_fn=None, args_chunk_spec=None, kwargs_chunk_spec=None,"
        " output_merge_spec=None, scale_grads=True)"
    ),
    "torch.distributed.pipelining.schedules:_PipelineSchedule._warmup_p2p": (
        "(self, stages, has_backward, p2p_done)"
    ),
    "torch.distributed.pipelining.stage:PipelineStage._inference_mode": "attribute",
    "transformers.distributed.expert_parallel:AllToAllEP._dispatch_tokens": (
        "(self, hidden_states, top_k_index, top_k_weights)"
    ),
    "transformers.integrations.moe:_can_use_grouped_mm": "(input, weight, offs)",
    # data/conversations/template.py renders millions of conversations, without what is alike.
    "transformers.utils.chat_template_utils:_alias_reasoning_fields": "(chat)",
    "transformers.utils.chat_template_utils:_compile_jinja_template": "(chat_template)",
    "transformers.utils.chat_template_utils:_plain_template_data": "(value)",
    "torch._subclasses.fake_tensor:FakeTensor": "attribute",
    "torch._subclasses.fake_tensor:FakeTensorMode": "attribute",
    "torch._subclasses.fake_tensor:unset_fake_temporarily": "()",
    "torch.utils._python_dispatch:TorchDispatchMode": "attribute",
    "torch.ops:_c10d_functional": "attribute",
    "torch.ops:aten._grouped_mm": "attribute",
    # parallel/ring.py needs the normaliser that scaled_dot_product_attention does not return.
    "torch.ops:aten._scaled_dot_product_flash_attention": "attribute",
    "torch.ops:aten._scaled_dot_product_flash_attention_backward": "attribute",
    "torch.ops:aten._scaled_dot_product_flash_attention_for_cpu": "attribute",
    "torch.ops:aten._scaled_dot_product_flash_attention_for_cpu_backward": "attribute",
    # launch/process_group.py lets the store of a process group listen on one address.
    "torch.distributed.rendezvous:_create_c10d_store": (
        "(hostname, port, rank, world_size, timeout, use_libuv=True)"
    ),
    # user_code/ray_train/session.py answers all calls of a loop, in place of Ray Train's object.
    "ray.train.v2._internal.execution.train_fn_utils:get_train_fn_utils": "()",
    "ray.train.v2._internal.execution.train_fn_utils:TrainFnUtils.get_checkpoint": "(self)",
    "ray.train.v2._internal.execution.train_fn_utils:set_train_fn_utils": "(train_fn_utils)",
    "ray.train.v2._internal.execution.train_fn_utils:_train_fn_utils": "attribute",
    "ray.train.v2._internal.execution.train_fn_utils:TrainFnUtils": "()",
    "ray.train.v2._internal.execution.train_fn_utils:TrainFnUtils.get_context": "(self)",
    "ray.train.v2._internal.execution.train_fn_utils:TrainFnUtils.get_dataset_shard": (
        "(self, dataset_info)"
    ),
    "ray.train.v2._internal.execution.train_fn_utils:TrainFnUtils.get_all_reported_checkpoints": (
        "(self, consistency_mode=<CheckpointConsistencyMode.VALIDATED: 'VALIDATED'>,"
        " timeout_s=None)"
    ),
    "ray.train.v2._internal.execution.train_fn_utils:TrainFnUtils.get_preemption_info": "(self)",
    "ray.train.v2._internal.execution.train_fn_utils:TrainFnUtils.is_distributed": "(self)",
    "ray.train.v2._internal.execution.train_fn_utils:TrainFnUtils.barrier": "(self)",
    "ray.train.v2._internal.execution.train_fn_utils:TrainFnUtils.broadcast_from_rank_zero": (
        "(self, data)"
    ),
    "ray.train.v2._internal.execution.storage:StorageContext": (
        "(storage_path, experiment_dir_name, storage_filesystem=None, read_only=False)"
    ),
    "ray.train.v2._internal.execution.train_fn_utils:TrainFnUtils.report": (
        "(self, metrics, checkpoint=None, checkpoint_dir_name=None,"
        " checkpoint_upload_mode=<CheckpointUploadMode.SYNC: 'SYNC'>,"
        " delete_local_checkpoint_after_upload=None, checkpoint_upload_fn=None, validation=False)"
    ),
    # launch/lanes/worker.py makes a new process group over the store of the old one.
    "torch.distributed.distributed_c10d:_get_default_store": "()",
    # runtime/seeding.py restores the hooks that a trial registers for all modules and
    # optimizers: all dictionaries of these modules whose names are like these.
    "torch.nn.modules.module:_global_forward_hooks": "attribute",
    "torch.optim.optimizer:_global_optimizer_pre_hooks": "attribute",
    # training/optimizers.py updates all weights in a few calls, as torch's own optimizers do.
    "torch:_foreach_add_": "attribute",
    "torch:_foreach_lerp": "attribute",
    "torch:_foreach_lerp_": "attribute",
    "torch:_foreach_mul_": "attribute",
    "torch:_foreach_sign_": "attribute",
}
"""`module:name` or `module:Class.name` → its signature without annotations.

`attribute` marks a name for which only the existence is checked: in the module or the class, or
assigned to `self` in the class's source.
"""
