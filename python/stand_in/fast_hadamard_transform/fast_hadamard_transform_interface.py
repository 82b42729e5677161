from fwht.compat.fast_hadamard_transform import *  # noqa: F403
