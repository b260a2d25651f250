package doctest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// sample is documented like a struct of options.
type sample struct {
	// Bytes is one. Defaults to 4 GiB, as
	// much as another; at least 1.
	Bytes int64
	// Most, Few and Each are three. Default to 5,000, 8 and 100.
	Most uint32
	Few  int
	Each int
	// Sum is two. Defaults to 2 MiB + 4 KiB.
	Sum int64
	// Wait is a time. Defaults to 1.5 s.
	Wait time.Duration
	// Workers is said in words. Defaults to GOMAXPROCS.
	Workers int
	// Quiet has none.
	Quiet int
	Name  string
}

func usual() sample {
	return sample{Bytes: 4 << 30, Most: 5_000, Few: 8, Each: 100, Sum: 2<<20 + 4<<10, Wait: 1500 * time.Millisecond, Workers: 3}
}

func TestDefaults(t *testing.T) {
	Defaults(t, "doctest_test.go", usual())
	for name, change := range map[string]func(*sample){
		"the only one": func(s *sample) { s.Bytes++ },
		"the first":    func(s *sample) { s.Most++ },
		"the second":   func(s *sample) { s.Each = 5_000 },
		"a time":       func(s *sample) { s.Wait = time.Second },
		"none":         func(s *sample) { s.Quiet = 1 },
	} {
		s := usual()
		change(&s)
		deaf := &recorder{TB: t}
		Defaults(deaf, "doctest_test.go", s)
		assert.True(t, deaf.failed, name)
	}
}

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }
