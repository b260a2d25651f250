package relaytest

type refusal struct {
	text      string
	notice    bool // NOTICE instead of CLOSED or NEG-ERR
	eose      bool // followed by EOSE
	rate      bool // because of the rate
	challenge bool // preceded by AUTH
	max       int  // maximum number of records in a NEG-ERR
	after     int  // number of filters accepted before
}
