package postgres_test

import (
	"strings"
)

// goldenGrants are the functions that give rights to a role, each as it is called for one of what TestGolden has.
var goldenGrants = []string{"grant_producer('orders', %)", "grant_relay(%)", "grant_adopt(%)", "grant_enqueuer('emails', %)", "grant_worker('emails', %)", "grant_operator('emails', %)",
	"grant_consumer('billing', %)", "grant_inbox_operator('billing', %)"}

// rights are the statements that have the effect of each grant, on a role that had no rights.
func (g *golden) rights() string {
	g.Helper()
	var out strings.Builder
	for _, grant := range goldenGrants {
		role, _ := g.role()
		g.Exec("select penstock." + strings.Replace(grant, "%", "'"+role+"'", 1))
		out.WriteString("\n-- " + strings.Replace(grant, "%", "role", 1) + "\n")
		for _, line := range g.column(strings.ReplaceAll(goldenRights, "{role}", "'"+role+"'::regrole")) {
			out.WriteString(line + "\n")
		}
	}
	return out.String()
}

const goldenRights = `
	with a as (
		select 1 as n, 'schema' as kind, x.nspname::text as name, a.privilege_type as may from pg_namespace x, aclexplode(x.nspacl) a where a.grantee = {role}
		union all
		select 2, case c.relkind when 'S' then 'sequence' else 'table' end, c.oid::regclass::text, a.privilege_type from pg_class c, aclexplode(c.relacl) a where a.grantee = {role}
		union all
		select 2, 'table', c.oid::regclass::text, format('%s (%s)', a.privilege_type, string_agg(quote_ident(x.attname), ', ' order by x.attnum))
		  from pg_class c join pg_attribute x on x.attrelid = c.oid, aclexplode(x.attacl) a where a.grantee = {role} group by c.oid, a.privilege_type
		union all
		select 3, 'function', p.oid::regprocedure::text, a.privilege_type from pg_proc p, aclexplode(p.proacl) a where a.grantee = {role})
	select format('grant %s on %s %s to role;', lower(string_agg(a.may, ', ' order by a.may)), a.kind, a.name) from a group by a.n, a.kind, a.name order by a.n, a.kind desc, a.name collate "C"`
