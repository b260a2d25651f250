package filters

// Halve is what Pack halves with.
var Halve = halve
