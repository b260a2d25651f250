package gitserve

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/doctest"
)

func TestDefaultsAreAsDocumented(t *testing.T) {
	doctest.Defaults(t, "config.go", Config{}.withDefaults())
	doctest.Defaults(t, "repositoriesconfig.go", RepositoriesConfig{}.withDefaults())
}

// Every number of a configuration has a bound, and what is beyond it is named.
func TestEachNumberIsBounded(t *testing.T) {
	good := Config{}.withDefaults()
	doctest.Bounded(t, good, Config.withDefaults, Config.validate)
	doctest.OneWillDo(t, good, Config.validate)
	folder := RepositoriesConfig{}.withDefaults()
	doctest.Bounded(t, folder, RepositoriesConfig.withDefaults, RepositoriesConfig.validate)
	require.ErrorContains(t, RepositoriesConfig{MaxMemory: 1}.withDefaults().validate(), "MaxMemory is 1, want at least 268435456 bytes")
}
