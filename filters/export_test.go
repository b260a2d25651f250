package filters

// Halve is what Split and Pack halve with.
var Halve = halve
