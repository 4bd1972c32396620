"""Runs the import statement given as the only argument; prints CPU seconds, resident bytes and the loaded modules.

It must load nothing itself: the same script with `pass` is the base that figures are compared with.
"""

import sys
import time

exec(sys.argv[1])

cpu = time.process_time()
with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123  (pathlib would be in the figures)
    pages = int(statm.read().split()[1])
print(cpu, pages * 4096, *sys.modules)
