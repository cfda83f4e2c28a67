#!/usr/bin/env python3
"""What clock, power and energy do when the character of the work changes.

Phases of products run back to back, each launch timed by events on the device; a thread reads
NVML's power, energy counter, clocks and temperature all the while. Nothing is set, only read.

  steady       every product alone for some seconds, from bandwidth-bound to compute-bound
  after        compute-bound products after idling, after bandwidth-bound ones, after themselves
  alternating  a compute-bound stretch and a bandwidth-bound one in turn, in several proportions

Usage: transients.py OUT     (writes OUT/transients-launches.csv, OUT/transients-nvml.csv,
                              prints one line a phase)
"""
import ctypes
import sys
import threading
import time

import torch

HIDDEN, WIDE = 4096, 24576


class Nvml:
    """The few read-only calls that are needed."""

    def __init__(self):
        self.lib = ctypes.CDLL("libnvidia-ml.so.1")
        self.lib.nvmlInit_v2()
        self.device = ctypes.c_void_p()
        self.lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device))

    def number(self, call, *args, kind=ctypes.c_uint):
        value = kind()
        status = getattr(self.lib, call)(self.device, *args, ctypes.byref(value))
        return value.value if status == 0 else -1

    def read(self):
        return (self.number("nvmlDeviceGetPowerUsage"),
                self.number("nvmlDeviceGetTotalEnergyConsumption", kind=ctypes.c_ulonglong),
                self.number("nvmlDeviceGetClockInfo", 1), self.number("nvmlDeviceGetClockInfo", 2),
                self.number("nvmlDeviceGetTemperature", 0),
                self.number("nvmlDeviceGetCurrentClocksEventReasons", kind=ctypes.c_ulonglong))


class Sampler(threading.Thread):
    def __init__(self, nvml, start):
        super().__init__(daemon=True)
        self.nvml, self.start_s, self.rows, self.ends = nvml, start, [], False

    def run(self):
        while not self.ends:
            self.rows.append((time.perf_counter() - self.start_s, *self.nvml.read()))
            time.sleep(0.002)


class Bench:
    def __init__(self, out):
        self.start = time.perf_counter()
        self.nvml = Nvml()
        self.sampler = Sampler(self.nvml, self.start)
        self.weights = [torch.randn(WIDE, HIDDEN, device="cuda", dtype=torch.bfloat16)
                        for _ in range(3)]
        self.inputs = {m: torch.randn(m, HIDDEN, device="cuda", dtype=torch.bfloat16)
                       for m in (32, 128, 256, 512, 1024, 2048, 8192)}
        self.outputs = {m: torch.empty(m, WIDE, device="cuda", dtype=torch.bfloat16)
                        for m in self.inputs}
        self.copy = torch.empty(2, 1 << 29, device="cuda", dtype=torch.uint8)
        self.launches = open(f"{out}/transients-launches.csv", "w", encoding="utf-8")
        self.launches.write(f"# {torch.cuda.get_device_name(0)}, torch {torch.__version__}; products "
                            f"of m x {HIDDEN} by {HIDDEN} x {WIDE} in bf16; m = 0: a copy of 512 MiB\n"
                            "phase,kind,m,host_s,n,us\n")
        self.out = out

    def launch(self, m, i):
        if m == 0:
            self.copy[1].copy_(self.copy[0])
        else:
            torch.mm(self.inputs[m], self.weights[i % 3].t(), out=self.outputs[m])

    def batch(self, phase, kind, m, n):
        """n launches, timed as one; the host follows closely enough to know when."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for i in range(n):
            self.launch(m, i)
        end.record()
        return phase, kind, m, n, begin, end

    def stretch(self, phase, kind, m, seconds):
        """Launches in batches of about 5 ms, at most two of them ahead of the device."""
        n = max(1, round(5e-3 / self.estimate[m]))
        until, waiting = time.perf_counter() + seconds, []
        while time.perf_counter() < until:
            waiting.append(self.batch(phase, kind, m, n))
            if len(waiting) > 2:
                self.finish(waiting.pop(0))
        for batch in waiting:
            self.finish(batch)

    def finish(self, batch):
        phase, kind, m, n, begin, end = batch
        end.synchronize()
        self.launches.write(f"{phase},{kind},{m},{time.perf_counter() - self.start:.5f},{n},"
                            f"{begin.elapsed_time(end) * 1e3 / n:.2f}\n")

    def prepare(self):
        self.estimate = {}
        for m in [0, *self.inputs]:
            for i in range(3):
                self.launch(m, i)
            torch.cuda.synchronize()
            began = time.perf_counter()
            for i in range(5):
                self.launch(m, i)
            torch.cuda.synchronize()
            self.estimate[m] = (time.perf_counter() - began) / 5
        self.sampler.start()

    def phase(self, name, pieces):
        """pieces: (kind, m, seconds); m None idles."""
        energy, began = self.nvml.read()[1], time.perf_counter()
        for kind, m, seconds in pieces:
            if m is None:
                time.sleep(seconds)
            else:
                self.stretch(name, kind, m, seconds)
        torch.cuda.synchronize()
        took = time.perf_counter() - began
        joules = (self.nvml.read()[1] - energy) * 1e-3
        print(f"{name:<28} {took:6.2f} s {joules:8.1f} J {joules / took:7.1f} W  sm "
              f"{self.nvml.read()[2]} MHz {self.nvml.read()[4]} C", flush=True)

    def close(self):
        self.sampler.ends = True
        self.sampler.join()
        with open(f"{self.out}/transients-nvml.csv", "w", encoding="utf-8") as file:
            file.write("s,power_mw,energy_mj,sm_mhz,memory_mhz,celsius,reasons\n")
            for row in self.sampler.rows:
                file.write(f"{row[0]:.4f}," + ",".join(str(v) for v in row[1:]) + "\n")
        self.launches.close()


def main():
    bench = Bench(sys.argv[1])
    bench.prepare()
    bench.phase("idle", [("idle", None, 1.5)])
    for m in (0, 32, 128, 256, 512, 1024, 2048, 8192):
        bench.phase(f"steady-{m}", [("steady", m, 2.5)])
    bench.phase("after-idle", [("idle", None, 2.0), ("after", 2048, 2.0)])
    bench.phase("after-memory", [("before", 32, 2.0), ("after", 2048, 2.0)])
    bench.phase("after-copy", [("before", 0, 2.0), ("after", 2048, 2.0)])
    bench.phase("after-itself", [("before", 2048, 2.0), ("after", 32, 2.0)])
    for compute, memory in ((0.01, 0.16), (0.03, 0.16), (0.1, 0.16), (0.1, 0.05), (0.5, 0.5)):
        pieces = [("compute", 2048, compute), ("memory", 32, memory)] * int(3 / (compute + memory))
        bench.phase(f"alternating-{compute:g}-{memory:g}", pieces)
    for m, memory in ((256, 0.1), (512, 0.1)):
        bench.phase(f"alternating-m{m}", [("compute", m, 0.1), ("memory", 32, memory)] * 12)
    bench.close()


if __name__ == "__main__":
    main()
