// Opens messages whose payload is stored outside of them (docs/guides/relaying.md#large-payloads).
import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

/** The header with the reference to a stored payload. */
export const header = 'penstock-claim-check'

/** Fetch reads the object of a name, 64 hexadecimal digits, from the bucket or directory that the consumer trusts. */
export type Fetch = (name: string) => Uint8Array | Promise<Uint8Array>

/** AlteredError: the stored payload is not the one that was published. */
export class AlteredError extends Error {
  override name = 'AlteredError'
}

/** open returns the payload as it was published. The reference is the message's header; without one that is the payload itself. Size and SHA-256 are verified. */
export async function open(reference: string | Uint8Array | null | undefined, payload: Uint8Array, fetch: Fetch): Promise<Uint8Array> {
  if (!reference?.length) return payload
  let parsed: any
  try {
    parsed = JSON.parse(typeof reference === 'string' ? reference : new TextDecoder().decode(reference))
  } catch (err) {
    throw new Error(`the header ${header} cannot be read`, { cause: err })
  }
  const url = String(parsed?.url), name = url.slice(url.lastIndexOf('/') + 1)
  if (!/^[0-9a-f]{64}$/.test(name)) throw new Error(`the URL ${JSON.stringify(url)} does not end in a name that Penstock gives`)
  const stored = await fetch(name)
  if (stored.length !== parsed.bytes || createHash('sha256').update(stored).digest('hex') !== parsed.sha256) {
    throw new AlteredError(`${url}: the stored payload is not the one that was published: it has ${stored.length} bytes, of ${parsed.bytes}`)
  }
  return stored
}

/** directory is a fetch that reads from the relay's directory, which may have another path here. */
export function directory(path: string): Fetch {
  return name => readFile(join(path, name))
}
