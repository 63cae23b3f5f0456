package doctor

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/check"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/adopt"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

// fromCheck adds the findings of adopt check.
func (e *examination) fromCheck(name, about string, findings []check.Finding, unseen []check.Unseen) {
	for _, f := range findings {
		one := doctor.Finding{Check: name, Severity: doctor.Severity(f.Severity.String()), About: cmp.Or(about, f.Code), Found: f.Title, Why: f.Detail}
		switch {
		case f.Severity == check.Note && name == doctor.CheckAdopted:
			continue
		case f.Severity == check.Note:
			one.Severity = doctor.OK
		}
		if about != "" {
			one.Found += " [" + f.Code + "]"
		}
		var next []string
		for _, s := range f.Fix {
			if !s.Alternative {
				sql := s.SQL
				if s.By != "" {
					sql += ", " + s.By
				}
				next = append(next, sql)
			}
		}
		one.Next = strings.Join(next, "; ")
		for _, figure := range f.Evidence.Figures {
			one.Measured = append(one.Measured, doctor.Figure(figure))
		}
		e.add(one)
	}
	for _, u := range unseen {
		e.add(doctor.Finding{Check: doctor.CheckNotLookedAt, Severity: doctor.Unknown, About: u.What, Found: u.Why, Next: u.Hint})
	}
}

// adopted examines the tables that the configuration, or a flag, adopts.
func (e *examination) adopted(ctx context.Context, seen doctor.Examined) error {
	of, err := e.flags.adopting.Named("")
	if err != nil {
		return err
	}
	var all []adopt.Subscription
	if of != nil {
		all = []adopt.Subscription{*of}
	} else if all, err = adopt.Configured(e.app); err != nil || len(all) == 0 {
		return err
	}
	url, _, err := e.app.Database()
	if err != nil {
		return err
	}
	if drivers.NotPostgres(url) != "" { // its relay refuses misfits, and PostgreSQL the rest
		for i := range all {
			if err := e.adoptedStatus(ctx, &all[i], seen.Ahead); err != nil {
				return err
			}
		}
		return nil
	}
	conn, err := adopt.Connect(ctx, e.app)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for i := range all {
		about := shell.Visible(all[i].Config.Table)
		r, err := check.Run(ctx, conn, all[i].Config, check.Options{OldSnapshot: e.o.Old})
		if err != nil {
			if ctx.Err() != nil || conn.IsClosed() {
				return err
			}
			e.add(doctor.Finding{Check: doctor.CheckAdopted, Severity: doctor.Critical, About: about, Found: terminal.OneLine(err.Error())})
			continue
		}
		of := r.Findings[:0]
		for _, f := range r.Findings {
			switch f.Code { // findings about the database are reported once
			case check.CodeOldSnapshot, check.CodePrepared, check.CodeReplicationSlot, check.CodeStandby:
			default:
				of = append(of, f)
			}
		}
		e.fromCheck(doctor.CheckAdopted, about, of, nil)
		if find(e.found, func(f *doctor.Finding) bool { return f.Check == doctor.CheckAdopted && f.About == about }) == nil {
			e.add(doctor.Finding{Check: doctor.CheckAdopted, Severity: doctor.OK, About: about, Found: "its indexes and plans are as they should be"})
		}
		if err := e.adoptedStatus(ctx, &all[i], seen.Ahead); err != nil {
			return err
		}
	}
	return nil
}

// adoptedStatus examines the subscription over an adopted table, unless no relay has run for one.
func (e *examination) adoptedStatus(ctx context.Context, of *adopt.Subscription, ahead time.Duration) error {
	table, err := adopt.Open(ctx, e.app, of)
	if err != nil {
		return err
	}
	defer table.Close()
	status, err := table.Adopted.Status(ctx)
	if err != nil {
		return nil // the check has reported why, or there is none yet
	}
	r := &rules{now: look{at: time.Now().Add(ahead)}, o: e.o}
	r.subscription(table.Config.Table, table.Argument(), &status, nil)
	e.add(r.found...)
	return nil
}
