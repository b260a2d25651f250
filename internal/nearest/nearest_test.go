package nearest_test

import (
	"flag"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/nearest"
)

func TestOf(t *testing.T) {
	known := []string{"bootstrap", "domain", "max-bytes", "max-owner-bytes"}
	for name, want := range map[string]string{
		"bootstraps": "bootstrap", "bootstarp": "bootstrap", "domian": "domain", "max-byte": "max-bytes", "owner-bytes": "max-owner-bytes", "domain": "domain",
	} {
		require.Equal(t, want, nearest.Of(name, known))
	}
	require.Empty(t, nearest.Of("x", nil))
}

func TestFlag(t *testing.T) {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Int("max", 1, "")
	require.EqualError(t, nearest.Flag(fs, fs.Parse([]string{"-mex", "2"})), "flag provided but not defined: -mex, the nearest flag is -max")
	require.NotContains(t, nearest.Flag(fs, fs.Parse([]string{"-max", "x"})).Error(), "nearest")
}
