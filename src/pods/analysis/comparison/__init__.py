"""Which arm is better: contrasts with intervals and tests, speed-ups, and the words for them."""
