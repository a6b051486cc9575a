"""Moving weights: models, policies, losses and the one learner."""
