#!/usr/bin/env python3
"""Cases from the field that are about serving: each asked over HTTP of the binary, on the document's own files.

  served.py BINARY CASES.md [ID ...]

Every row of every case is a line, every answer is asked for whole and streamed, and what a case took stands below it.
Limits of time are the document's, for a machine that has nothing else to do.
"""
import os
import sys

import document
from served_api import a1, a2, a3, a4, j1, j2
from served_end import o4, o5
from served_life import n1, n2, o1, o2, o3
from served_messages import p1
from served_sampling import s1, s2, s3, s4, s5, s6
from served_tokens import t1, t2, t3, t4, t5

ALL = (n1, n2, t1, t2, t3, t4, t5, s1, s2, s3, s4, s5, s6, a1, a2, a3, a4, j1, j2, p1, o1, o2, o3, o4, o5)


if __name__ == "__main__":
    document.run(document.Cases(sys.argv[1], os.path.abspath(sys.argv[2])), ALL, sys.argv[3:])
