package batchverify

import (
	"sync"
)

// All costs are in thousandths of one single check.
const single = 1000

const (
	// accountMax is the maximum that hostile batches can cost beyond single checks after many good
	// batches. It covers the most expensive batch.
	accountMax = 160 * single

	// singleIncome is added for each good event that was checked alone, so that batches are tried
	// again some time after the account was emptied: a batch of 64 after ten good batches of that
	// size. An attacker who keeps the account empty can raise the cost of a check by no more than
	// this.
	singleIncome = single / 50

	// wasteShare is the share of a call's single checks that its failed batches may cost, beyond
	// the first batch and beyond the savings of its good parts.
	wasteShare = single / 4

	// parts is the number of parts of a failed batch. If one signature is bad, the first division
	// already clears most of the other parts.
	parts = 8
)

// account pays for failed batches, so that hostile input costs no more than single checks. Each
// failure is paid from earlier savings, from singleIncome, or from the initial balance.
type account struct {
	mu      sync.Mutex
	balance int // 0 to accountMax; guarded by mu
}

// covers reports whether the balance is at least cost.
func (a *account) covers(cost int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.balance >= cost
}

// add adds an amount, which may be negative.
func (a *account) add(amount int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.balance = min(max(a.balance+amount, 0), accountMax)
}

// batchCost estimates the cost of one equation over n events of the given number of authors. It is
// fitted to measurements. An error of a third changes the cost and never a verdict.
func batchCost(n, authors int) int {
	return costBase + min(n, costMany)*costEvent + max(n-costMany, 0)*costEventMany + authors*costAuthor
}

const (
	costBase      = 1000
	costEvent     = 55
	costEventMany = 36 // beyond costMany events, because windows are wider
	costMany      = 256
	costAuthor    = 85
)
