package relaytest

// refusal is how a request is turned down.
type refusal struct {
	text      string
	notice    bool // NOTICE instead of CLOSED or NEG-ERR
	eose      bool // and EOSE after it
	rate      bool // it is about the rate
	challenge bool // AUTH before it
	max       int  // the most records, in a NEG-ERR
	after     int  // so many filters were taken before
}
