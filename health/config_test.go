package health

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/backoff"
)

// bad sets one field of a valid Config to an invalid value.
var bad = map[string]func(*Config){
	"BaseBackoff":    func(c *Config) { c.BaseBackoff = -1 },
	"MaxBackoff":     func(c *Config) { c.fixed.MaxBackoff = -1 },
	"DeadAfter":      func(c *Config) { c.fixed.DeadAfter = backoff.Longest + 1 },
	"DeadInterval":   func(c *Config) { c.fixed.DeadInterval = -1 },
	"Jitter":         func(c *Config) { c.fixed.Jitter = math.NaN() },
	"HeldFor":        func(c *Config) { c.fixed.HeldFor = -time.Second },
	"RedialWithin":   func(c *Config) { c.fixed.RedialWithin = math.MinInt64 },
	"DegradedFor":    func(c *Config) { c.fixed.DegradedFor = -1 },
	"RateLimit":      func(c *Config) { c.fixed.RateLimit = math.MaxInt64 },
	"HostileBackoff": func(c *Config) { c.fixed.HostileBackoff = -1 },
	"RestartPause":   func(c *Config) { c.RestartPause = -1 },
	"MaxRecords":     func(c *Config) { c.MaxRecords = -1 },
	"MaxHosts":       func(c *Config) { c.fixed.MaxHosts = -1 },
}

// configField is a field of a Config or of its constants.
type configField struct {
	reflect.StructField
	of func(*Config) reflect.Value
}

func configFields() (fields []configField) {
	for f := range reflect.TypeFor[Config]().Fields() {
		if f.Name != "fixed" {
			fields = append(fields, configField{f, func(c *Config) reflect.Value { return reflect.ValueOf(c).Elem().FieldByIndex(f.Index) }})
		}
	}
	for f := range reflect.TypeFor[constants]().Fields() {
		fields = append(fields, configField{f, func(c *Config) reflect.Value { return reflect.ValueOf(&c.fixed).Elem().FieldByIndex(f.Index) }})
	}
	return fields
}

// This test fails for a new field without default or validation.
func TestConfigHandlesEveryField(t *testing.T) {
	defaults := Config{}.withDefaults()
	var all Config
	for _, f := range configFields() {
		assert.False(t, f.of(&defaults).IsZero(), "%s has no default", f.Name)
		if f.Name == "Rand" { // results are limited to the valid range
			continue
		}
		if !assert.Contains(t, bad, f.Name, "no bad value of this field is tried") {
			continue
		}
		one := Config{}.withDefaults()
		bad[f.Name](&one)
		_, err := NewTracker(one)
		require.ErrorContains(t, err, f.Name+": ")
		f.of(&all).Set(f.of(&one))
	}
	_, err := NewTracker(all)
	for name := range bad {
		assert.ErrorContains(t, err, name+": ", "every bad field is named at once")
	}
}

func TestConfigFieldsThatContradict(t *testing.T) {
	_, err := NewTracker(Config{BaseBackoff: time.Minute, fixed: constants{MaxBackoff: time.Second}})
	require.ErrorContains(t, err, "BaseBackoff: 1m0s is above 1s")
	_, err = NewTracker(Config{fixed: constants{DeadInterval: time.Minute}})
	require.ErrorContains(t, err, "MaxBackoff: 1h0m0s is above 1m0s")
	for _, jitter := range []float64{-0.1, 1.1, math.Inf(1)} {
		_, err = NewTracker(Config{fixed: constants{Jitter: jitter}})
		require.ErrorContains(t, err, "Jitter: ")
	}
}

func TestConfigKeepsWhatIsSet(t *testing.T) {
	c := Config{
		BaseBackoff: 1, fixed: constants{
			MaxBackoff:     2,
			RateLimit:      8,
			DeadAfter:      3,
			DeadInterval:   4,
			Jitter:         0.5,
			HeldFor:        5,
			RedialWithin:   6,
			DegradedFor:    7,
			HostileBackoff: 9,
			MaxHosts:       12,
			Rand:           func() float64 { return 0.25 },
		}, RestartPause: 10, MaxRecords: 11,
	}
	got := c.withDefaults()
	assert.InDelta(t, 0.25, got.fixed.Rand(), 0)
	c.fixed.Rand, got.fixed.Rand = nil, nil
	assert.Equal(t, c, got)
	require.NoError(t, c.validate())
}

// Values at a limit are accepted, values beyond are refused.
func TestConfigBounds(t *testing.T) {
	durations := 0
	for _, f := range configFields() {
		if f.Type != reflect.TypeFor[time.Duration]() {
			continue
		}
		durations++
		for d, ok := range map[time.Duration]bool{-1: false, 0: false, backoff.Longest: true, backoff.Longest + 1: false} {
			c := Config{}.withDefaults()
			if d > 0 { // avoids contradictory fields
				c.fixed.MaxBackoff, c.fixed.DeadInterval = backoff.Longest, backoff.Longest
			}
			if d > 0 && f.Name == "MaxBackoff" {
				c.fixed.DeadInterval = d
			}
			f.of(&c).SetInt(int64(d))
			err := c.validate()
			assert.Equal(t, ok, err == nil || !strings.Contains(err.Error(), f.Name+": "+d.String()), "%s %v: %v", f.Name, d, err)
			if ok {
				assert.NoError(t, err)
			}
		}
	}
	assert.Equal(t, 10, durations)
	for _, c := range []Config{
		{BaseBackoff: time.Minute, fixed: constants{MaxBackoff: time.Minute, DeadInterval: time.Minute}},
		{BaseBackoff: 1, fixed: constants{
			MaxBackoff:     1,
			RateLimit:      1,
			DeadAfter:      1,
			DeadInterval:   1,
			HeldFor:        1,
			RedialWithin:   1,
			DegradedFor:    1,
			HostileBackoff: 1,
		}, RestartPause: 1},
		{fixed: constants{Jitter: 1, MaxHosts: 1}, MaxRecords: 1},
	} {
		assert.NoError(t, c.withDefaults().validate())
	}
	none := Config{}.withDefaults()
	none.fixed.Jitter = 0
	assert.NoError(t, none.validate())
}

// The constants of the specification.
func TestConfigDefaults(t *testing.T) {
	c := Config{}.withDefaults()
	require.NoError(t, c.validate())
	r := c.random()
	assert.True(t, r >= 0 && r < 1)
	c.fixed.Rand = nil
	assert.Equal(t, Config{
		BaseBackoff: 5 * time.Second,
		fixed: constants{
			MaxBackoff:     time.Hour,
			RateLimit:      65 * time.Second,
			DeadAfter:      24 * time.Hour,
			DeadInterval:   24 * time.Hour,
			Jitter:         0.1,
			HeldFor:        time.Minute,
			RedialWithin:   time.Second,
			DegradedFor:    5 * time.Minute,
			HostileBackoff: time.Hour,
			MaxHosts:       50_000,
		},
		RestartPause: time.Minute,
		MaxRecords:   50_000,
	}, c)
}

func TestConfigRandomIsForcedIntoRange(t *testing.T) {
	for _, v := range []float64{-1, 0, 0.5, 1, 2, math.NaN(), math.Inf(1), math.Inf(-1)} {
		c := Config{fixed: constants{Rand: func() float64 { return v }}}
		got := c.random()
		assert.True(t, got >= 0 && got < 1, "%v gave %v", v, got)
		assert.Equal(t, v >= 1, got > 0.99, "%v gave %v", v, got)
	}
}
