"""What steps and sweeps cost: a fitted model, forecasts, and which arm a machine favours."""
