// Builds dist as ES modules and dist/cjs as CommonJS, each with its types.
import { execFileSync } from 'node:child_process'
import { copyFileSync, cpSync, existsSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'

process.chdir(import.meta.dirname)
const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc')
const compile = project => execFileSync(process.execPath, [tsc, '-p', project], { stdio: 'inherit' })

rmSync('dist', { recursive: true, force: true })
compile('tsconfig.json')
// Whether tsc writes an ES module or CommonJS depends on the package.json next to a .ts file. So it compiles a copy, which the next build deletes if
// this one is killed.
cpSync('src', 'dist/src', { recursive: true })
for (const folder of ['dist/src', 'dist/cjs']) {
  if (folder === 'dist/cjs') compile('tsconfig.cjs.json')
  writeFileSync(`${folder}/package.json`, '{ "type": "commonjs" }\n')
}
rmSync('dist/src', { recursive: true })
if (existsSync('../../LICENSE')) copyFileSync('../../LICENSE', 'LICENSE')
