"""Inner loops of methods other than LP and A2LP, one package each: its settings, and ``LOOP`` with its engines."""
