package nearest_test

import (
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
