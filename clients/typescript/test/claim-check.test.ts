import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { claimCheck } from '../src/index.js'

const vector = JSON.parse(await readFile(new URL('../../conformance/claim_check.json', import.meta.url), 'utf8')) as { payload: string, reference: string, body: string }
const payload = new TextEncoder().encode(vector.payload), body = new TextEncoder().encode(vector.body)
const name = (JSON.parse(vector.reference).url as string).split('/').at(-1)!
const never = () => { throw new Error('was fetched') }

test('a message is opened, and one without a reference is as it is', async () => {
  const names: string[] = []
  const fetch = (name: string) => { names.push(name); return payload }
  expect(await claimCheck.open(vector.reference, body, fetch)).toEqual(payload)
  expect(await claimCheck.open(new TextEncoder().encode(vector.reference), body, async name => fetch(name))).toEqual(payload)
  expect(names).toEqual([name, name])
  for (const none of [undefined, null, '', new Uint8Array()]) expect(await claimCheck.open(none, body, never)).toBe(body)
})

test('another payload is an error', async () => {
  for (const altered of [new Uint8Array(), payload.slice(1), Buffer.concat([payload, payload]), payload.map(b => b + 1)]) {
    await expect(claimCheck.open(vector.reference, body, () => altered)).rejects.toThrow(claimCheck.AlteredError)
  }
})

test('only names that the relay gives are fetched', async () => {
  for (const reference of ['{', '1', 'null', '{}', '[]', ...['../../etc/passwd', name.toUpperCase(), `${name}/`, `${name}\\n`].map(other => vector.reference.replace(name, other))]) {
    await expect(claimCheck.open(reference, body, never)).rejects.toThrow(/cannot be read|does not end in a name/)
  }
})

test('files are opened', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'penstock-'))
  try {
    await expect(claimCheck.open(vector.reference, body, claimCheck.directory(folder))).rejects.toMatchObject({ code: 'ENOENT' })
    await writeFile(join(folder, name), payload)
    expect(Buffer.from(await claimCheck.open(vector.reference, body, claimCheck.directory(folder))).equals(payload)).toBe(true)
  } finally {
    await rm(folder, { recursive: true })
  }
})
