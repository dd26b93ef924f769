"""The node autoscaler: cordons idle nodes, gives them back, asks for more. The decisions are `muster.decide.idle`."""
