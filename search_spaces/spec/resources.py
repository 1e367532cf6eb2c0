"""The `resources` section, with the settings of NCCL.

Source of these: the environment variables of NVIDIA's NCCL user guide, version 2.28.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from search_spaces.errors import suggest
from search_spaces.nested import show
from search_spaces.spec.base import BEGUN, FROZEN, Seconds, Section
from search_spaces.spec.layout import AUTO, DDP, LayoutField, LayoutSpec

TIMEOUT = "NCCL_TIMEOUT"
"""No setting of NCCL, but widely used: seconds, as `process_group_timeout`."""
_NAMES = """
    ALGO ALGO_THRESHOLD ASYNC_ERROR_HANDLING BUFFSIZE CHECKS_DISABLE CHECK_POINTERS COLLNET_ENABLE
    COLLNET_NODE_THRESHOLD COMM_BLOCKING COMM_ID CONF_FILE CREATE_THREAD_CONTEXT CROSS_NIC
    CTA_POLICY CUMEM_ENABLE CUMEM_HOST_ENABLE DEBUG DEBUG_FILE DEBUG_SUBSYS DEBUG_TIMESTAMP_FORMAT
    DEBUG_TIMESTAMP_LEVELS DMABUF_ENABLE GDRCOPY_ENABLE GIN_ENABLE GIN_TYPE GRAPH_DUMP_FILE
    GRAPH_DUMP_FILE_RANK GRAPH_FILE GRAPH_MIXING_SUPPORT GRAPH_REGISTER HOSTID IB_ADAPTIVE_ROUTING
    IB_ADDR_FAMILY IB_ADDR_RANGE IB_AR_THRESHOLD IB_CUDA_SUPPORT IB_DISABLE IB_ECE_ENABLE
    IB_FIFO_TC IB_GDR_LEVEL IB_GID_INDEX IB_HCA IB_MERGE_NICS IB_MERGE_VFS IB_PCI_RELAXED_ORDERING
    IB_QPS_PER_CONNECTION IB_RETRY_CNT IB_RETURN_ASYNC_EVENTS IB_ROCE_VERSION_NUM IB_SL
    IB_SPLIT_DATA_ON_QPS IB_TC IB_TIMEOUT IGNORE_CPU_AFFINITY IGNORE_DISABLED_P2P
    LAUNCH_MODE LAUNCH_ORDER_IMPLICIT LAUNCH_RACE_FATAL LL_BUFFSIZE LL_THRESHOLD LOCAL_REGISTER
    MAX_CTAS MAX_NCHANNELS MAX_NRINGS MAX_P2P_NCHANNELS MEM_SYNC_DOMAIN MIN_CTAS MIN_NCHANNELS
    MIN_NRINGS MNNVL_ENABLE MNNVL_UUID NCHANNELS_PER_NET_PEER NET NETDEVS_POLICY NET_DISABLE_INTRA
    NET_FORCE_FLUSH NET_GDR_C2C NET_GDR_LEVEL NET_GDR_READ NET_MERGE_LEVEL NET_OVERHEAD NET_PLUGIN
    NET_SHARED_BUFFERS NET_SHARED_COMMS NSOCKS_PERTHREAD NTHREADS NVB_DISABLE NVLS_ENABLE
    NVLSTREE_MAX_CHUNKSIZE NVLS_NCHANNELS OOB_NET_ENABLE OOB_NET_IFNAME P2P_DIRECT_DISABLE
    P2P_DISABLE P2P_LEVEL P2P_LL_THRESHOLD P2P_NET_CHUNKSIZE P2P_READ_ENABLE PASSTHROUGH_SGL
    PROFILER_PLUGIN PROTO PXN_C2C PXN_DISABLE RAS_ADDR RAS_ENABLE RAS_TIMEOUT_FACTOR
    RUNTIME_CONNECT SET_STACK_SIZE SET_THREAD_NAME SHM_DISABLE SHM_LOCALITY SHM_USE_CUDA_MEMCPY
    SINGLE_PROC_MEM_REG_ENABLE SINGLE_RING_THRESHOLD SOCKET_FAMILY SOCKET_IFNAME
    SOCKET_NTHREADS SOCKET_RETRY_CNT SOCKET_RETRY_SLEEP_MSEC STORE_IFNAME SYM_CTAS THREAD_THRESHOLDS
    TOPO_DUMP_FILE TOPO_FILE TREE_THRESHOLD TUNER_CONFIG_PATH TUNER_PLUGIN WIN_ENABLE
    WIN_STRIDE WORK_FIFO_DEPTH ZERO_COPY
"""
NCCL_NAMES = (TIMEOUT, *(f"NCCL_{name}" for name in _NAMES.split()))


def _check_settings(value: object) -> object:
    """Names that NCCL has, with one number or text each; the texts that the environment gets."""
    if not isinstance(value, Mapping):
        raise ValueError(f"must be like {{NCCL_ALGO: Ring, NCCL_IB_DISABLE: 1}}, got {show(value)}")
    for name, setting in value.items():
        if name not in NCCL_NAMES:
            raise ValueError(f"NCCL has no setting {show(name)}{suggest(name, NCCL_NAMES)[:200]}")
        if isinstance(setting, bool) or not isinstance(setting, str | int):
            raise ValueError(f"{name}: must be a text or a whole number, got {show(setting)}")
        if name == TIMEOUT and not (isinstance(setting, int) and setting > 0):
            raise ValueError(f"{name}: must be whole seconds > 0, got {show(setting)}")
    return {name: str(setting) for name, setting in value.items()}


NcclSettings = Annotated[dict[str, str], BeforeValidator(_check_settings)]


MAX_WORKERS = 10_000


class WorkerRange(Section):
    """Range of the number of workers, which follows the free resources."""

    min: int = Field(1, ge=1, le=MAX_WORKERS, description="Fewest ranks of a trial (processes).")
    max: int = Field(ge=1, le=MAX_WORKERS, description="Most ranks of a trial (processes).")
    grow_after: Seconds = Field(
        60.0,
        description="Time that resources must be unused before a trial takes them (or '5m').",
    )

    @model_validator(mode="after")
    def _ascends(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self


def _in_words(value: object) -> object:
    """Validate a number of workers or a range; every mistake gives the same one-line message."""
    if isinstance(value, WorkerRange):
        return value
    if isinstance(value, Mapping):
        try:
            return WorkerRange.model_validate(dict(value))
        except ValidationError:
            pass
    elif isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_WORKERS:
        return value
    raise ValueError(
        f"must be a whole number from 1 to {MAX_WORKERS}, or like "
        f"{{min: 1, max: 4, grow_after: 60s}} with min <= max, got {show(value)}"
    )


Workers = Annotated[
    Annotated[int, Field(ge=1, le=MAX_WORKERS)] | WorkerRange, BeforeValidator(_in_words)
]


def _whole_or_shared(gpus: float) -> float:
    if gpus > 1 and gpus != int(gpus):
        raise ValueError(f"must be a whole number, or below 1 to share a GPU, got {gpus:g}")
    return gpus


class ResourcesSpec(Section):
    """Resources of a trial, and the number of concurrent trials."""

    workers: Workers = Field(
        1,
        description="Ranks of a trial (processes); {min: 1, max: 4}: as many as fit the cluster.",
    )
    layout: LayoutField = Field(
        DDP,
        description="How the ranks share the model: ddp (each has a copy), fsdp (they share one), "
        "the sizes of the axes, or auto (of each trial the first that fits the memory).",
    )
    memory_per_worker: float | None = Field(
        None,
        gt=0,
        description="With layout: auto, memory of one worker for its training step (GiB); default: "
        "that of its GPU, or of its part of one.",
    )
    cpus_per_worker: float = Field(1, gt=0, description="CPU cores of one worker (cores).")
    gpus_per_worker: (
        Annotated[float, Field(ge=0), AfterValidator(_whole_or_shared)] | Literal["auto"]
    ) = Field(
        "auto",
        description="GPUs of one worker (GPUs); below 1, such as 0.25, workers share a GPU and "
        "each gets that part of its memory; auto: one if the cluster has enough, else 0; trials of "
        "one worker share it where that is measured to train more.",
    )
    concurrency: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="Trials at once (trials); auto: as many as the cluster can place."
    )
    isolation: Literal["auto", "lane", "trial"] = Field(
        "auto",
        description="lane: processes run trial after trial; trial: new ones for each; auto: lane, "
        "but trial for code that leaves something behind, or connects its processes itself.",
    )
    max_trials_per_lane: int | None = Field(
        None,
        ge=1,
        description="Trials after which a lane's processes are replaced (trials); default: never.",
    )
    max_lane_growth: int = Field(
        512,
        ge=1,
        description="Memory of the host or a GPU that a process may hold in addition to what it "
        "held after its lane's first trial; with more, the lane is replaced (MiB).",
    )
    process_group_timeout: Seconds | None = Field(
        None,
        description="Time after which a collective of the workers fails (or '5m'); default: 30m.",
    )
    nccl: NcclSettings = Field(
        default_factory=dict,
        description="Settings of NCCL for all trials, such as {NCCL_ALGO: Ring}, in place of those "
        "of the machine; NCCL_TIMEOUT is process_group_timeout in seconds.",
    )

    @model_validator(mode="before")
    @classmethod
    def _leave_out_removed(cls, values: Any, info: ValidationInfo) -> Any:
        """`spares`, of an earlier version, has no effect on a sweep that has begun."""
        drops = info.context in (FROZEN, BEGUN) and isinstance(values, dict)
        return {k: v for k, v in values.items() if k != "spares"} if drops else values

    @model_validator(mode="after")
    def _check_nccl(self) -> Self:
        gpus = self.gpus_per_worker
        if self.nccl and self.max_workers == 1:
            raise ValueError("nccl has no effect with one worker; set workers, or leave it out")
        if self.nccl and gpus != "auto" and gpus < 1:
            why = "workers that share a GPU use gloo" if gpus else "workers without GPUs use gloo"
            raise ValueError(f"nccl has no effect: {why}")
        if TIMEOUT in self.nccl and self.process_group_timeout is not None:
            raise ValueError(f"give process_group_timeout or nccl.{TIMEOUT}, not both")
        return self

    @model_validator(mode="after")
    def _memory_is_used(self) -> Self:
        if self.memory_per_worker is not None and not self.chooses_layout:
            raise ValueError("memory_per_worker has an effect only with layout: auto")
        return self

    @property
    def chooses_layout(self) -> bool:
        """Whether each trial has a layout of its own, by its memory."""
        return self.layout == AUTO

    @property
    def written_layout(self) -> LayoutSpec:
        """The layout of every trial; where each has its own: copies of the model."""
        return DDP if isinstance(self.layout, str) else self.layout

    @property
    def process_group_timeout_s(self) -> float:
        """Seconds after which a collective fails."""
        return self.process_group_timeout or float(self.nccl.get(TIMEOUT, 1800.0))

    @property
    def min_workers(self) -> int:
        """The fewest workers that a trial may have."""
        return self.workers.min if isinstance(self.workers, WorkerRange) else self.workers

    @property
    def max_workers(self) -> int:
        """The most workers that a trial may have."""
        return self.workers.max if isinstance(self.workers, WorkerRange) else self.workers

    def data_parallel(self, workers: int) -> int:
        """Ranks of a trial with so many workers that share a batch; all if the layout is wrong."""
        try:
            return self.written_layout.resolve(workers).data_parallel
        except ValueError:
            return workers

    @property
    def elastic(self) -> bool:
        """Whether a trial's number of workers may change."""
        return self.min_workers < self.max_workers

    @property
    def grow_after_s(self) -> float:
        """Seconds for which resources must be unused before a trial takes them."""
        return self.workers.grow_after if isinstance(self.workers, WorkerRange) else math.inf
