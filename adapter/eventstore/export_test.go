package eventstoreadapter

// Waiting returns the size of the unread answers in bytes.
func (s *Store) Waiting() int {
	used, _ := s.answers.Stats()
	return int(used)
}
