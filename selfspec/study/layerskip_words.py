"""Labels that runs of exits share with their pages. No MLX."""

NOTHING_KEPT = "nothing kept"  # ends the label of an exit whose rows run again
SMALL_MODEL = "small model"  # the two-model mode
KNAPSACK = "knapsack"  # begins the label of a skip set that a knapsack chose
DYNAMIC = "dynamic"  # begins the label of a draft whose exit is chosen for each token
