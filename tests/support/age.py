"""A pair of age-keygen, for tests alone."""

PUBLIC = "age1zvqe5z06zkrmhcfkfz964sk9kta0qncy7cx23e7fglhcyr7csersnyxw0t"
SECRET = "AGE-SECRET-KEY-1DMZWA4T3RH0RGHXJQ9CKGS73ZHXDK3HSVRD95CRQLRH723PDE9AQDLUCZC"
