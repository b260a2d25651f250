package batchverify

import (
	"sync"
)

// All costs are in thousandths of one single check.
const single = 1000

const (
	// accountMax bounds what hostile batches can cost beyond single checks, in
	// all, after a long time of good ones. It covers the dearest batch there is.
	accountMax = 160 * single

	// singleIncome is what a good event adds when checked alone, so that batches
	// are tried again some time after the account ran empty: a batch of 64 after ten of
	// them. It is all that whoever keeps the account empty can make a check cost more.
	singleIncome = single / 50

	// wasteShare is how much of a call's single checks its failed batches may
	// cost, beyond the first and beyond what its good halves saved.
	wasteShare = single / 4

	// parts is how many parts a failed batch is cut into. Where one signature is
	// bad, the first cut then frees most of the others, at once.
	parts = 8
)

// account pays for batches that fail. It is what makes hostile input no dearer
// than checking one by one: each failure is paid from savings made before, or from
// a fiftieth of the single checks, or from the bounded balance it starts with.
type account struct {
	mu      sync.Mutex
	balance int // 0 to accountMax; guarded by mu
}

// covers tells whether a batch of that cost may fail.
func (a *account) covers(cost int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.balance >= cost
}

// add books income, or a loss where amount is negative.
func (a *account) add(amount int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.balance = min(max(a.balance+amount, 0), accountMax)
}

// batchCost estimates what one equation over n events of that many authors costs.
// It is fitted to measurements; a machine where it is off by a third still gets
// the right verdicts, at a slightly different price.
func batchCost(n, authors int) int {
	return costBase + min(n, costMany)*costEvent + max(n-costMany, 0)*costEventMany + authors*costAuthor
}

const (
	costBase      = 1000
	costEvent     = 55
	costEventMany = 36 // beyond costMany events windows are wider
	costMany      = 256
	costAuthor    = 85
)
