// A database for the run, with the schema of the penstock binary of this tree.
import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import type { TestProject } from 'vitest/node'

declare module 'vitest' {
  export interface ProvidedContext { url: string }
}

export default async function setup(project: TestProject) {
  const server = process.env.PENSTOCK_TEST_POSTGRES
  if (!server) throw new Error('PENSTOCK_TEST_POSTGRES names no server: run clients/typescript/test.sh')
  const name = `penstock_ts_${randomBytes(4).toString('hex')}`
  const admin = new pg.Client(server)
  await admin.connect()
  await admin.query(`create database ${name}`)
  const url = new URL(server)
  url.pathname = name
  const penstock = process.env.PENSTOCK ?? fileURLToPath(new URL('../../../bin/penstock', import.meta.url))
  execFileSync(penstock, ['migrate'], { env: { ...process.env, PENSTOCK_DATABASE_URL: url.href } })
  project.provide('url', url.href)
  return async () => {
    await admin.query(`drop database ${name} with (force)`)
    await admin.end()
  }
}
