"""PODS: which rollouts should a policy be trained on, at the same wall-clock budget?"""
