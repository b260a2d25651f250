package health

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

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
