package egress

import (
	"testing"

	"github.com/graspsync/graspsync/internal/doctest"
)

func TestDefaultsAreAsDocumented(t *testing.T) {
	doctest.Defaults(t, "budget.go", BudgetConfig{}.withDefaults())
}

func TestEachNumberIsBounded(t *testing.T) {
	doctest.Bounded(t, BudgetConfig{}.withDefaults(), BudgetConfig.withDefaults, BudgetConfig.validate)
}
