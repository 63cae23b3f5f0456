package main

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/penstock/penstock/lab/measure"
	"github.com/spf13/pflag"
)

// bind makes a flag of each field of a configuration that has a help.
func bind(flags *pflag.FlagSet, settings any) {
	v := reflect.ValueOf(settings).Elem()
	for i := range v.NumField() {
		field := v.Type().Field(i)
		help := field.Tag.Get("help")
		if help == "" {
			continue
		}
		name := measure.FlagName(field.Name)
		switch at := v.Field(i).Addr().Interface().(type) {
		case *int:
			flags.IntVar(at, name, *at, help)
		case *bool:
			flags.BoolVar(at, name, *at, help)
		case *time.Duration:
			flags.DurationVar(at, name, *at, help)
		case *[]int:
			flags.IntSliceVar(at, name, *at, help)
		case *[]string:
			flags.StringSliceVar(at, name, *at, help)
		case *[]time.Duration:
			flags.DurationSliceVar(at, name, *at, help)
		default: // a string, or a type of one
			text := v.Field(i).Addr().Convert(reflect.TypeFor[*string]()).Interface().(*string)
			flags.StringVar(text, name, *text, help)
		}
	}
}

// settingsOf are the flags of a configuration by their names in JSON, durations as text.
func settingsOf(settings any) map[string]any {
	v, all := reflect.ValueOf(settings).Elem(), map[string]any{}
	for i := range v.NumField() {
		if field := v.Type().Field(i); field.Tag.Get("help") != "" {
			value := v.Field(i).Interface()
			if text, ok := value.(fmt.Stringer); ok {
				value = text.String()
			}
			all[strings.ReplaceAll(measure.FlagName(field.Name), "-", "_")] = value
		}
	}
	return all
}

// settingsText has them as one would type them.
func settingsText(settings any) string {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	bind(flags, settings)
	var all []string
	flags.VisitAll(func(f *pflag.Flag) {
		if text := f.Value.String(); text != "false" && text != "" {
			all = append(all, "--"+f.Name+" "+strings.Trim(text, "[]"))
		}
	})
	return strings.ReplaceAll(strings.Join(all, " "), " true", "")
}
