"""The samples, a folder each, written as a user would.

`HEADWATER_MODULES=orders` means `headwater.samples.orders`.
"""
