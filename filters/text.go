package filters

// MarshalText returns what String does.
func (r RepoRef) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what [ParseRepoRef] reads.
func (r *RepoRef) UnmarshalText(text []byte) error {
	ref, err := ParseRepoRef(string(text))
	if err != nil {
		return err
	}
	*r = ref
	return nil
}
