package eventstoreadapter

// Waiting is how much the answers take that were not read to their end, in bytes.
func (s *Store) Waiting() int {
	used, _ := s.answers.Stats()
	return int(used)
}
