"""What ./testbed does once there is a Python: its commands, one function each in commands.py.

Needs nothing but Python itself, so that a wrong argument is refused before anything is installed, and a machine that
reaches no package registry can build, test and sweep. The script ./testbed finds or installs what else is missing.
"""
