// Package seconds encodes durations in JSON as seconds.
package seconds

import (
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// Seconds is a duration that is a number of seconds in JSON, with nanosecond precision.
type Seconds time.Duration

// MarshalJSON implements [json.Marshaler].
func (s Seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, time.Duration(s).Seconds(), 'f', -1, 64), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (s *Seconds) UnmarshalJSON(text []byte) error {
	var n float64
	if err := json.Unmarshal(text, &n); err != nil {
		return err
	}
	*s = Seconds(math.Round(n * float64(time.Second)))
	return nil
}
