// Writes the TypeScript of the README, each example in a function, with declarations of the names that a reader supplies.
// tsc checks it with the types of the build. `readme.mjs nestjs` writes the module for NestJS, which a test runs.
import { readFileSync } from 'node:fs'

const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8')
const all = [...readme.matchAll(/```ts\n(.*?)```/gs)].map(([, code]) => code)
const nestjs = all.filter(code => code.includes("'@penstock/client/nestjs'"))
const examples = all.filter(code => !nestjs.includes(code))
const imports = examples.flatMap(code => code.match(/^import .*$/gm) ?? []).map(line => line.replace("'@penstock/client/testing'", "'../dist/testing.js'").replace("'@penstock/client'", "'../dist/index.js'"))
if (examples.length < 4 || nestjs.length !== 1) throw new Error('the README has lost its examples')
console.log(process.argv[2] === 'nestjs' ? nestjs[0] : `import type { Pool, PoolClient } from 'pg'
import { deadLetter, snooze, type Message, type NewJob, type Penstock } from '../dist/index.js'
${imports.join('\n')}
declare const penstock: Penstock, pool: Pool, tx: PoolClient, messages: Message[], jobs: NewJob[], messageId: string, busy: boolean, valid: boolean, handler: Handler, other: Handler
declare const headers: Record<string, string>, body: Uint8Array
declare const s3: { getObject(of: { Bucket: string, Key: string }): Promise<{ Body?: { transformToByteArray(): Promise<Uint8Array> } }> }
declare function send(mail: { to: string }, options: { signal: AbortSignal }): Promise<void>
declare function print(order: number): Promise<void>
declare function remind(name: string): void
declare const sendWelcome: Handler, sendDigest: Handler
export const examples = [${examples.map(code => `async () => {\n${code.replace(/^import .*$/gm, '')}}`).join(', ')}]`)
