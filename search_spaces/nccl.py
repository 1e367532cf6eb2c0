"""The settings of NCCL that a sweep file may have (`resources.nccl`).

Source: the environment variables of NVIDIA's NCCL user guide, version 2.28.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator

from search_spaces.errors import suggest
from search_spaces.nested import show

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
NAMES = (TIMEOUT, *(f"NCCL_{name}" for name in _NAMES.split()))


def _check(value: object) -> object:
    """Names that NCCL has, with one number or text each; the texts that the environment gets."""
    if not isinstance(value, Mapping):
        raise ValueError(f"must be like {{NCCL_ALGO: Ring, NCCL_IB_DISABLE: 1}}, got {show(value)}")
    for name, setting in value.items():
        if name not in NAMES:
            raise ValueError(f"NCCL has no setting {show(name)}{suggest(name, NAMES)[:200]}")
        if isinstance(setting, bool) or not isinstance(setting, str | int):
            raise ValueError(f"{name}: must be a text or a whole number, got {show(setting)}")
        if name == TIMEOUT and not (isinstance(setting, int) and setting > 0):
            raise ValueError(f"{name}: must be whole seconds > 0, got {show(setting)}")
    return {name: str(setting) for name, setting in value.items()}


NcclSettings = Annotated[dict[str, str], BeforeValidator(_check)]
