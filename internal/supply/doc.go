// Package supply holds what whoever imports the library depends on to a small number.
package supply
