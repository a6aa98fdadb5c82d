"""The public message interface of the Capacity Management Module: messages, their encoding, names."""

from gridpost.wire.cmm.document import CONTENT_TYPE, SCHEMA_NAME, decode, encode
from gridpost.wire.cmm.heartbeat import read_heartbeat, write_heartbeat
from gridpost.wire.cmm.messages import (
    Alc,
    AlcResult,
    AllocationData,
    AllocationDataList,
    AllocationDataNtf,
    AllocationDataReq,
    AllocationDataResp,
    AllocationReq,
    AllocationResp,
    Allocations,
    AtcData,
    AtcDataList,
    AtcDataNtf,
    AtcDataReq,
    AtcDataResp,
    ErrorResp,
    Login,
    LoginResp,
    Message,
)
from gridpost.wire.cmm.names import Names
from gridpost.wire.cmm.payload import GZIP, pack, unpack

__all__ = [
    "CONTENT_TYPE",
    "GZIP",
    "SCHEMA_NAME",
    "Alc",
    "AlcResult",
    "AllocationData",
    "AllocationDataList",
    "AllocationDataNtf",
    "AllocationDataReq",
    "AllocationDataResp",
    "AllocationReq",
    "AllocationResp",
    "Allocations",
    "AtcData",
    "AtcDataList",
    "AtcDataNtf",
    "AtcDataReq",
    "AtcDataResp",
    "ErrorResp",
    "Login",
    "LoginResp",
    "Message",
    "Names",
    "decode",
    "encode",
    "pack",
    "read_heartbeat",
    "unpack",
    "write_heartbeat",
]
