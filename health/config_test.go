package health

import (
	"math"
	"time"

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
