#!/usr/bin/env python3
"""Power, energy, clocks and temperature by NVML until it is killed: nvml.py OUT.csv"""
import ctypes, signal, sys, time
lib = ctypes.CDLL("libnvidia-ml.so.1")
lib.nvmlInit_v2()
dev = ctypes.c_void_p()
lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(dev))
class Field(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint), ("scope", ctypes.c_uint), ("ts", ctypes.c_longlong),
                ("lat", ctypes.c_longlong), ("type", ctypes.c_uint), ("ret", ctypes.c_uint),
                ("val", ctypes.c_ulonglong)]
def num(call, *a, kind=ctypes.c_uint):
    v = kind()
    s = getattr(lib, call)(dev, *a, ctypes.byref(v))
    return v.value if s == 0 else -1
f = Field(186, 0)
def instant():
    s = lib.nvmlDeviceGetFieldValues(dev, 1, ctypes.byref(f))
    return (f.val & 0xffffffff) if s == 0 and f.ret == 0 else -1
for s in (signal.SIGTERM, signal.SIGINT):
    signal.signal(s, lambda *_: sys.exit(0))
with open(sys.argv[1], "w", encoding="ascii") as out:
    lim = num("nvmlDeviceGetEnforcedPowerLimit")
    maxsm = num("nvmlDeviceGetMaxClockInfo", 1)
    out.write(f"# limit {lim} mW, max sm {maxsm} MHz\nepoch,mono,power_mw,instant_mw,energy_mj,sm,mem,c,reasons\n")
    last = None
    while True:
        row = (num("nvmlDeviceGetPowerUsage"), instant(),
               num("nvmlDeviceGetTotalEnergyConsumption", kind=ctypes.c_ulonglong),
               num("nvmlDeviceGetClockInfo", 1), num("nvmlDeviceGetClockInfo", 2),
               num("nvmlDeviceGetTemperature", 0),
               num("nvmlDeviceGetCurrentClocksEventReasons", kind=ctypes.c_ulonglong))
        if row != last:
            out.write(f"{time.time():.4f},{time.monotonic():.4f}," + ",".join(map(str, row)) + "\n")
            out.flush()
            last = row
        time.sleep(0.008)
