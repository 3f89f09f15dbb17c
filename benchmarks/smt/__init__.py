"""`bin/bench smt`: each stock transform and converter by itself, here and in Java Connect's own class.

`cases` says what is measured, `here` measures Penstock, `java` compiles and runs `Harness.java`, `command` prints.
"""
