package stopwatch

import (
	"errors"
)

var (
	errOver    = errors.New("over")
	errCrowded = errors.New("crowded")
)
